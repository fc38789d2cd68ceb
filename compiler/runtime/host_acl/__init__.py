"""The pyACL calls that cannc uses, implemented on the host: same names, returns and errors."""
