"""The OM container: schema, writer, reader, self-check."""
