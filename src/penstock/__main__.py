"""`python -m penstock`."""

from penstock._cli.main import main

if __name__ == "__main__":
    main()
