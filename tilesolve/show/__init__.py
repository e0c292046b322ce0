"""What is shown: tables, pictures and the doctor."""
