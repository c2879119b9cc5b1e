package geminiformat

// CommandDir is the directory of the user's commands, below the program's own.
const CommandDir = "commands"

// PromptKey begins the line of a command file that contains the prompt.
const PromptKey = "prompt = "
