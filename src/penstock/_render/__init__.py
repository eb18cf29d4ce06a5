"""A report on screen or on disk: `as_text`, `as_json`, `as_html`, `as_sarif`, `as_github`. Runs nothing."""
