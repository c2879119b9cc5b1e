package geminiformat

// NotebookDir is the directory of notebooks, below the program's own directory.
const NotebookDir = "overwinter"
