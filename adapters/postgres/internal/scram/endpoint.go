package scram

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
)

// bindingType is the one channel binding that PostgreSQL knows (RFC 5929).
const bindingType = "tls-server-end-point"

// EndPoint is the channel binding of a connection whose server shows the certificate: its hash, by the hash of its
// signature. It is nil where that is not defined (Ed25519), and there is no channel binding then.
func EndPoint(certificate *x509.Certificate) []byte {
	switch certificate.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.SHA256WithRSA, x509.ECDSAWithSHA256, x509.SHA256WithRSAPSS:
		sum := sha256.Sum256(certificate.Raw)
		return sum[:]
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384, x509.SHA384WithRSAPSS:
		sum := sha512.Sum384(certificate.Raw)
		return sum[:]
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512, x509.SHA512WithRSAPSS:
		sum := sha512.Sum512(certificate.Raw)
		return sum[:]
	default:
		return nil
	}
}
