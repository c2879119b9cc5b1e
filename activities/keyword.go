package activities

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxKeyword bounds a search attribute of type Keyword. Temporal's visibility store on Postgres and
// MySQL has columns of 255 characters.
const maxKeyword = 255

// keyword returns the address of a repository as a search attribute: without credentials, valid
// UTF-8, and truncated to the length that every visibility store accepts.
func keyword(address string) string {
	address = strings.ToValidUTF8(address, "\uFFFD")
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		address = u.String()
	} else if at := strings.LastIndexByte(address, '@'); at >= 0 {
		address = address[at+1:]
	}
	return cutKeyword(address)
}

// ownerOf returns the owner of a session, the member "owner" of its metadata; empty if it is not a
// string.
func ownerOf(metadata json.RawMessage) string {
	var m struct {
		Owner json.RawMessage `json:"owner"`
	}
	var owner string
	if json.Unmarshal(metadata, &m) != nil || json.Unmarshal(m.Owner, &owner) != nil {
		return ""
	}
	return cutKeyword(strings.ToValidUTF8(owner, "\uFFFD"))
}

// cutKeyword truncates a text to the length of a search attribute.
func cutKeyword(text string) string {
	for cut := maxKeyword; len(text) > maxKeyword; cut-- {
		if utf8.RuneStart(text[cut]) {
			text = text[:cut]
		}
	}
	return text
}
