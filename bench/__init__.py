"""Benchmarks: our loader, stock torch and its peers on identical work. See README.md."""
