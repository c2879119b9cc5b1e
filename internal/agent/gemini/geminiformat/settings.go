package geminiformat

// EnvSettings names the environment variable that passes the program's settings to the bridge, as
// JSON.
const EnvSettings = "OVERWINTER_GEMINI_SETTINGS"
