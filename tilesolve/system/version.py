"""The version of the library, said once: the package and its distribution take it from here."""

__version__ = "0.1.0"
