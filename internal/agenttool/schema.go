package agenttool

import (
	"encoding/json"
	"maps"
)

// property is a field of the input of a tool.
type property struct {
	name     string
	required bool
	schema   map[string]any
}

// object returns the schema of an input with these properties.
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
		panic(err) // consists of texts and numbers
	}
	return b
}

// text is a required text property.
func text(name, description string, most int) property {
	return property{name: name, required: true, schema: map[string]any{
		"type": "string", "description": description, "minLength": 1, "maxLength": most,
	}}
}

// optional makes a property optional.
func optional(p property) property {
	schema := maps.Clone(p.schema)
	delete(schema, "minLength")
	return property{name: p.name, schema: schema}
}

// number is an optional non-negative number.
func number(name, description string) property {
	return property{name: name, schema: map[string]any{"type": "integer", "description": description, "minimum": 0, "maximum": maxCount}}
}

// choice is an optional text with the given values.
func choice(name, description string, values ...string) property {
	return property{name: name, schema: map[string]any{"type": "string", "description": description, "enum": values}}
}

// objects returns an optional property for a list of objects with these properties.
func objects(name, description string, most int, properties ...property) property {
	return property{name: name, schema: map[string]any{"type": "array", "description": description, "maxItems": most, "items": object(properties...)}}
}

// list returns an optional property for a list of strings.
func list(name, description string, most, each int) property {
	return property{name: name, schema: map[string]any{
		"type": "array", "description": description, "maxItems": most, "items": map[string]any{"type": "string", "minLength": 1, "maxLength": each},
	}}
}
