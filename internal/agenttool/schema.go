package agenttool

import "encoding/json"

// property is a field of the input of a tool.
type property struct {
	name     string
	required bool
	schema   map[string]any
}

// object is the schema of an input with these properties.
func object(properties ...property) json.RawMessage {
	all, required := map[string]any{}, []string{}
	for _, p := range properties {
		all[p.name] = p.schema
		if p.required {
			required = append(required, p.name)
		}
	}
	b, err := json.Marshal(map[string]any{"type": "object", "properties": all, "required": required, "additionalProperties": false})
	if err != nil {
		panic(err) // texts and numbers
	}
	return b
}

// text is a required text.
func text(name, description string, most int) property {
	return property{name: name, required: true, schema: map[string]any{
		"type": "string", "description": description, "minLength": 1, "maxLength": most,
	}}
}
