"""One file for each group of routes: read the request, ask the engine, write the answer."""
