"""What every room needs: errors, files, the unit that travels. Imports nothing else of cannc."""
