"""Plain twins of compiled code, for reading and for tests of agreement."""
