"""A workflow task: as polled, as lang answered it, as it is reported; and what went wrong."""
