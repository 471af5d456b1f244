"""Raw text to pre-training text: cleaned, filtered, without duplicates, held out, shuffled."""
