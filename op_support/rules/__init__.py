"""The rules of the checker, one file per kind. Each rule takes a site and yields findings."""
