"""Files of tables: opened, recognised by their first bytes, and read block by block."""
