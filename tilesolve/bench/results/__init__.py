"""What a sweep found: kept, summarised, drawn."""
