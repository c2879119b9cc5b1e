package geminiformat

// CommandDir is where the program has the user's commands, below its directory.
const CommandDir = "commands"

// PromptKey begins the line of a command's file that has the prompt.
const PromptKey = "prompt = "
