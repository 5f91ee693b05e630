"""Many runs: what to try, when to stop, what was best, and a log that survives everything."""
