"""The `minibert` command: the table of its commands, how a command line is read, and what refuses unused arguments."""
