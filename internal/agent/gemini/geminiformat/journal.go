package geminiformat

// JournalDir is where journals are kept, below the program's own directory.
const JournalDir = "overwinter"
