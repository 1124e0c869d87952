"""The apps are programs that tests and commands read; they are not imported as modules of tests."""

collect_ignore = ["apps"]
