package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// EncodeState returns a translator's state as JSON, with the version of its encoding in the field
// "v". State must be a struct. Increment the version if an earlier reader would misunderstand the
// state. A change that only adds a field may keep it.
func EncodeState(version int, state any) ([]byte, error) {
	b, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("the state of a translator is a struct, not %s", b)
	}
	head := append([]byte(`{"v":`), strconv.Itoa(version)...)
	if string(b) != "{}" {
		head = append(head, ',')
	}
	return append(head, b[1:]...), nil
}

// DecodeState decodes the output of EncodeState. A state without a version is version 1. A version
// above the given one is an error, because a newer release has written the state.
func DecodeState(data []byte, version int, state any) error {
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Version > version {
		return fmt.Errorf("version %d is newer than %d, which this release reads", head.Version, version)
	}
	return json.Unmarshal(data, state)
}
