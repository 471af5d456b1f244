"""What every command shares: flags, errors in a sentence."""
