package stdio

import "encoding/json"

// EnvTools is the environment variable with the command line of the server of overwinter's tools,
// for programs that start it themselves. It is not a flag, so that a program of an earlier release,
// in a sandbox that is awake during a deploy, ignores it.
const EnvTools = "OVERWINTER_TOOLS"

// EncodeTools returns the value of EnvTools.
func EncodeTools(argv []string) string {
	b, err := json.Marshal(argv)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(b)
}

// DecodeTools decodes the value of EnvTools; nil if it is empty.
func DecodeTools(value string) []string {
	var argv []string
	if json.Unmarshal([]byte(value), &argv) != nil {
		return nil
	}
	return argv
}
