"""The pyACL code path: what runs on a device, and on a host over `host_acl`."""
