package lockpb

import _ "embed"

//go:embed openapi.swagger.json
var openAPI []byte

// OpenAPI returns a copy of the API's OpenAPI v2 document, as served at /openapi.json.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }
