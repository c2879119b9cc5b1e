package activities

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxKeyword is what a search attribute of type Keyword may take. Temporal's visibility store on
// Postgres and MySQL has columns of 255 characters.
const maxKeyword = 255

// keyword is the address of a repository as a search attribute: without credentials, valid UTF-8,
// and cut to the length that every visibility store takes.
func keyword(address string) string {
	address = strings.ToValidUTF8(address, "\uFFFD")
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		address = u.String()
	} else if at := strings.LastIndexByte(address, '@'); at >= 0 {
		address = address[at+1:]
	}
	for cut := maxKeyword; len(address) > maxKeyword; cut-- {
		if utf8.RuneStart(address[cut]) {
			address = address[:cut]
		}
	}
	return address
}
