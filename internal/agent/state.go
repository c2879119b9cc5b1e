package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// EncodeState returns a translator's state as JSON, with the version of its form in the field "v".
// State must be a struct. Add one to the version when an earlier reader would misunderstand the state;
// one that just lacks a new field may keep it.
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

// DecodeState reads the output of EncodeState, or a state without a version, which is version 1. A
// version above the given one is an error: a newer release has written it.
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
