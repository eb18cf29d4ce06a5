"""What must hold for every order of events, looked for by hypothesis."""
