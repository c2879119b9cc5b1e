package api

import (
	_ "embed"
	"fmt"
	"net/http"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"
)

//go:embed openapi.yaml
var specYAML []byte

//go:embed asyncapi.yaml
var asyncYAML []byte

// specification is the OpenAPI document in both its forms.
type specification struct {
	yaml, json []byte
	queries    map[string]queryParameters
}

// loadSpecification reads the document once per process, because that takes a third of a second of
// CPU time.
var loadSpecification = sync.OnceValues(func() (specification, error) {
	doc, err := openapi3.NewLoader().LoadFromData(specYAML)
	if err != nil {
		return specification{}, fmt.Errorf("api: read openapi.yaml: %w", err)
	}
	data, err := doc.MarshalJSON()
	if err != nil {
		return specification{}, fmt.Errorf("api: openapi.yaml as JSON: %w", err)
	}
	return specification{yaml: specYAML, json: data, queries: documentedQueries(doc)}, nil
})

func (s *Server) openapiJSON(c echo.Context) error {
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, s.spec.json)
}

// asyncapiYAML is the document of the WebSockets.
func (s *Server) asyncapiYAML(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", asyncYAML)
}

func (s *Server) openapiYAML(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", s.spec.yaml)
}
