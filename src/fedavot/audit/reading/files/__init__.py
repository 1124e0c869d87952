"""Files of tables: opened, told apart by their first bytes, and read block by block."""
