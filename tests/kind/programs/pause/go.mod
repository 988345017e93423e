module tidegate.dev/programs/pause

go 1.24.0
