"""Words and facts: values, settings, the host. Starts nothing."""
