package stdio

import (
	"net/http"
	"strings"
)

// invalidKey is how the Gemini API begins to say, with status 400, that a key does not exist.
const invalidKey = "API key not valid"

// RefusesKey reports whether a response of the server of a model means that it does not accept the key of the request.
func RefusesKey(status int, message string) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusBadRequest:
		return strings.Contains(message, invalidKey)
	}
	return false
}
