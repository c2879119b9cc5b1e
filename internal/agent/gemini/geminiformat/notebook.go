package geminiformat

// NotebookDir is where notebooks are kept, below the program's own directory.
const NotebookDir = "overwinter"
