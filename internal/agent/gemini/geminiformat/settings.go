package geminiformat

// EnvSettings is the variable in which the bridge gets the program's settings, as JSON.
const EnvSettings = "OVERWINTER_GEMINI_SETTINGS"
