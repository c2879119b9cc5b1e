package api

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// queryParameters are the names of the query parameters of an operation. An object parameter
// appears as its members, such as metadata[team].
type queryParameters struct{ names, objects []string }

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// documentedQueries returns the query parameters of each route in the OpenAPI document.
func documentedQueries(doc *openapi3.T) map[string]queryParameters {
	routes := map[string]queryParameters{}
	for path, item := range doc.Paths.Map() {
		path = strings.ReplaceAll(path, "{path}", "*")
		path = pathParameter.ReplaceAllString(path, ":$1")
		for method, operation := range item.Operations() {
			var q queryParameters
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				switch {
				case p.Value.In != openapi3.ParameterInQuery:
				case p.Value.Style == openapi3.SerializationDeepObject:
					q.objects = append(q.objects, p.Value.Name)
				default:
					q.names = append(q.names, p.Value.Name)
				}
			}
			routes[method+" "+path] = q
			if method == http.MethodGet {
				routes[http.MethodHead+" "+path] = q
			}
		}
	}
	return routes
}

// knows reports whether name is a parameter, or a member of one.
func (q queryParameters) knows(name string) bool {
	if slices.Contains(q.names, name) {
		return true
	}
	object, _, ok := member(name)
	return ok && slices.Contains(q.objects, object)
}

// member splits a name such as metadata[team].
func member(name string) (object, key string, ok bool) {
	object, key, ok = strings.Cut(name, "[")
	key, closed := strings.CutSuffix(key, "]")
	return object, key, ok && closed
}

// maxParameterName bounds the name of an unknown parameter in a response.
const maxParameterName = 100

// strictQuery refuses query parameters that the operation does not have, because a misspelled
// filter would otherwise select all items. It also refuses repeated parameters and malformed
// queries.
func (s *Server) strictQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		raw := c.Request().URL.RawQuery
		if raw == "" || c.Path() == streamRoute {
			return next(c) // the protocol of this route ignores unknown parameters
		}
		allowed, documented := s.spec.queries[c.Request().Method+" "+c.Path()]
		if !documented {
			return next(c) // there is no such endpoint
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			return &failure.Error{
				Code: failure.Invalid, Message: "the query string cannot be read: it must be NAME=VALUE, joined by & and percent-encoded", Err: err,
			}
		}
		var wrong []failure.Field
		for name, given := range values {
			shown := strings.ToValidUTF8(name[:min(len(name), maxParameterName)], "\uFFFD")
			switch {
			case !allowed.knows(name):
				wrong = append(wrong, failure.Field{Field: shown, Message: "is not a query parameter of this request"})
			case len(given) > 1:
				wrong = append(wrong, failure.Field{Field: shown, Message: "is given more than once"})
			}
		}
		if len(wrong) == 0 {
			return next(c)
		}
		slices.SortFunc(wrong, func(a, b failure.Field) int { return strings.Compare(a.Field, b.Field) })
		wrong = wrong[:min(len(wrong), maxWrongFields)]
		return &failure.Error{Code: failure.Invalid, Message: wrong[0].Field + " " + wrong[0].Message, Fields: wrong}
	}
}
