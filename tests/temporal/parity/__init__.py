"""What the official SDK does on the compiled core, written down scenario by scenario."""
