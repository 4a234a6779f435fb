"""`python -m repair`: the `repair` command, for launchers such as torchrun that start a module."""

from repair.cli import main

main()
