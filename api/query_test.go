package api_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestEveryRequestRefusesUnknownQueryParameters checks unknown and repeated parameters for each
// operation of the OpenAPI document.
func TestEveryRequestRefusesUnknownQueryParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	doc, _ := specification()
	operations := 0
	for path, item := range doc.Paths.Map() {
		if path == "/api/sessions/{id}/stream" {
			continue // the protocol of this route ignores unknown parameters
		}
		target := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(strings.Replace(path, "{id}", id, 1), "x")
		for method, operation := range item.Operations() {
			methods := []string{method}
			if method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, method := range methods {
				operations++
				check := func(query, field, message string) {
					t.Helper()
					if method == http.MethodHead { // the document has no HEAD operations
						req, err := http.NewRequestWithContext(t.Context(), method, b.url+target+"?"+query, nil)
						require.NoError(t, err)
						resp, err := b.client.Do(req)
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
						require.Equal(t, http.StatusBadRequest, resp.StatusCode, "%s %s?%s", method, path, query)
						return
					}
					a := b.do(method, target+"?"+query, "")
					require.Equal(t, http.StatusBadRequest, a.status, "%s %s?%s", method, path, query)
					p := a.problem(http.StatusBadRequest, "invalid_request")
					require.Contains(t, p.Detail, message)
					if field != "" {
						require.Equal(t, field, p.Errors[0].Field)
					}
				}
				check("statsu=running", "statsu", "statsu is not a query parameter of this request")
				check("metadata=x", "metadata", "is not a query parameter")
				check("other%5Bk%5D=x", "other[k]", "is not a query parameter")
				check("Limit=1", "Limit", "is not a query parameter")
				check("api_key=secret&", "api_key", "is not a query parameter")
				check("limit%5B%5D=1", "limit[]", "is not a query parameter")
				check("=x", "", "is not a query parameter")
				check("a;b", "", "cannot be read")
				check("%zz=1", "", "cannot be read")
				for _, p := range append(slices.Clone(item.Parameters), operation.Parameters...) {
					if p.Value.In != openapi3.ParameterInQuery {
						continue
					}
					name := p.Value.Name
					if p.Value.Style == openapi3.SerializationDeepObject {
						name += "[k]"
					}
					check(url.QueryEscape(name)+"=1&"+url.QueryEscape(name)+"=1", name, "is given more than once")
				}
			}
		}
	}
	require.Greater(t, operations, 60)
	b.do("GET", "/api/nowhere?x=1", "").problem(http.StatusNotFound, "not_found")
}
