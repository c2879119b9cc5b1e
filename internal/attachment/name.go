package attachment

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds the name of a file.
const MaxNameBytes = 255

// devices are names that some systems reserve for devices, with any extension.
var devices = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// CheckName returns the error in the name of a file that a client has sent; empty for a valid name.
func CheckName(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return "must be UTF-8"
	case strings.ContainsAny(name, `/\`):
		return "must not contain a path separator"
	case strings.ContainsFunc(name, unprintable):
		return "must not contain control characters"
	case strings.Trim(name, ". ") == "", devices.MatchString(name):
		return "is a reserved name"
	}
	return ""
}

// unprintable reports whether a character changes the display of others, or is invalid.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}
