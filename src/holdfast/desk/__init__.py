"""What people and programs ask of a store from outside: one set of verbs behind the HTTP API and
the command line. Knows no HTTP and prints nothing."""
