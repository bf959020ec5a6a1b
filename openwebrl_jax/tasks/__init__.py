"""Where tasks come from: benchmark files, local suites, and which one is next."""
