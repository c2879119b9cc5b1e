package stdio

import "encoding/json"

// EnvTools is the variable with the command line of the server of overwinter's tools, for the programs of agents that start it
// themselves. It is not a flag: a program of an earlier release, in a sandbox that is awake during a deploy, ignores it.
const EnvTools = "OVERWINTER_TOOLS"

// EncodeTools is the value of EnvTools.
func EncodeTools(argv []string) string {
	b, err := json.Marshal(argv)
	if err != nil {
		panic(err) // texts
	}
	return string(b)
}

// DecodeTools reads the value of EnvTools; nil if there is none.
func DecodeTools(value string) []string {
	var argv []string
	if json.Unmarshal([]byte(value), &argv) != nil {
		return nil
	}
	return argv
}
