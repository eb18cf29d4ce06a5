"""The command line: `main` and one thin `cmd_<name>` per command. Never imports torch by itself."""
