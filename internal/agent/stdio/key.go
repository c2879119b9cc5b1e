package stdio

import (
	"net/http"
	"strings"
)

// invalidKey begins the message of the Gemini API, with status 400, for a key that does not exist.
const invalidKey = "API key not valid"

// RefusesKey reports whether a response of the model API means that it does not accept the
// request's key.
func RefusesKey(status int, message string) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusBadRequest:
		return strings.Contains(message, invalidKey)
	}
	return false
}
