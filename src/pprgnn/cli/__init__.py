"""The command `pprgnn`, one file per group of commands; torch is imported only by what needs it."""
