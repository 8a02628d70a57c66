// Unpacks the browser of the package below TMPDIR, with the libraries that a bare machine lacks, and prints where it is.

process.env.AWS_EXECUTION_ENV ??= "AWS_Lambda_nodejs20.x"; // or the package leaves its libraries packed

const { default: chromium } = await import("@sparticuz/chromium");
console.log(await chromium.executablePath());
